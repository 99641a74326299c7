"""What the RPS paper claims, and what the simulator finds (Yu et al. 2019, arXiv 1810.07766).

Its theory against measurement: ``measure``, ``quadratic``, ``predictions``; its experiments:
``findings``, ``influence``, ``report``. The formulas themselves are in ``jaxlossy.theory``.
"""
