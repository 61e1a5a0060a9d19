"""Text ⇄ ids: the first and the last room of the walk."""
