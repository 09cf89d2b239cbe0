"""Images: files, arrays and pictures. Does not use jax."""
