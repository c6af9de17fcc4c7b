"""Benchmarks: Cleave beside its peers in the same process, in turns. docs/benchmarks.md says how they measure.

Run with `python -m bench...`; what others import is in folders and in modules without a command.

    bench                      suites of shapes (suites/*.json) of operations/, against peers/, into results/
    .unseen, .distributed      shapes that no table and no fit has seen; products over several GPUs
    .chain, .gate, .moe_layer  layers and parts of models for inference
    .training, .networks       steps of training
    .lora, .mixed, .precision, .route, .router_logits   single operations beside what torch has
    .pairs, .fit, .cover       measure kernels of jobs/ into measured/; fit the planner's model to them; choose few
    .regret, .bits             how well the planner chooses; which choices change bits
    .report, .plot, .readme    tables and pictures of results
"""
