"""Why each setting has its value: one function per setting, each returning a Decision."""
