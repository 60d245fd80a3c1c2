"""What an interest means: its grammar, builder, interpreter, analysis, rewrites, covering and serial form."""
