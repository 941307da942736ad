"""Compositional generalization of visual generative models (arXiv 2510.03075): pictures of a figure with three binary factors,
a probe and an oracle that read them, tokenizers, and generators that are trained on some of the eight compositions.

The chain of runs is probe -> tokenizer -> generator, a task each: `probe_task`, `tokenizer_task`, `generator_task`.
"""
