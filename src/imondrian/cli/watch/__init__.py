"""The work of `imondrian watch`: the rows of a stream, scored and learned as they arrive, and its incidents."""
