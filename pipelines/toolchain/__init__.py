"""The tool-chain lock: read, fetch what it pins, complete it, hand it on."""
