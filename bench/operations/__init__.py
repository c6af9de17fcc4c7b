"""What suites measure: a module for each kind of operation, with its cases, their operands and references."""
