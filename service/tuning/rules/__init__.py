"""Rules: one small pure function per setting, used by advice and checks alike."""
