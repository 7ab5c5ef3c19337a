"""The forest: `MondrianForest`, its state, scores, scales and samplers, and the checks of its input."""
