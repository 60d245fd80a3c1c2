"""Machine code that knows the insides of CPython: encoder, decoder, publish. Look here for every new Python."""
