"""From a config's path to its report: the run read, its facts established, the rules asked."""
