"""Telling the outcome to who asked for it, as the Standard Webhooks specification describes it."""
