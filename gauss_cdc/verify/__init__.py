"""`gauss-cdc verify`: source and target compared at one commit (docs/protocol.md, chapter 9)."""
