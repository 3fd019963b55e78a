"""The frozen transformer: how it is loaded, how its blocks run, where its weights wait."""
