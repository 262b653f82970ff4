"""A server that speaks GaussDB's and openGauss' side of logical decoding.

`model` says what happened in the database, `formats` turns it into the bytes that
a walsender sends, `server` speaks the protocol around them.  No code is shared with
`producer/sources/gauss/decoders`: each is the other's check.
"""
