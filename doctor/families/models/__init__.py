"""Model families of which the files are judged, a module each."""
