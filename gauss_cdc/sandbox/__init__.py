"""What is no part of the product: emulator, demo, local services."""
