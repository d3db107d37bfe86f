"""What connections of any protocol share: who is let in, what each may use, how they end."""
