"""Records in Redis or Valkey."""
