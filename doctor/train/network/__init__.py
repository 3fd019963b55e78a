"""The network that is trained: LoRA or LoKr, and the weights it begins with."""
