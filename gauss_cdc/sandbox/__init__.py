"""What is not part of the product: emulator, demo, local services."""
