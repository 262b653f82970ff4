"""Decoders of the family's plugins and styles: a record in, one vocabulary out."""
