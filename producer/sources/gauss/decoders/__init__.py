"""Decoders of the family's plugins and styles: from records to messages."""
