"""The laboratory: demo, emulator, local services.  They try the product, and are no part of it."""
