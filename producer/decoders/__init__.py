"""Plugin payload -> Message.  Pure: a decoder asks the server nothing."""
