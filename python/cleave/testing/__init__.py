"""What the `cleave` command, the benchmark, the examples and the tests share: cases, operands,
float64 references and time measurement.

A case says what to multiply (`case`, `grouped_case`, `conv_case`); `dense`, `grouped` and `conv`
make operands of it, plan and run it, and compare what comes out with float64. None of the library's
own modules imports this.
"""
