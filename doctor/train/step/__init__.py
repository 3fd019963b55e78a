"""One step: noise levels, loss, optimizer, and the measure of what was learnt."""
