"""Small language models on the bundled text, trained for a few steps."""

from __future__ import annotations

CONTEXT = 24
TOKENS = 62

_REST = """\
    - FullyConnected: {name: head, num_hidden: 62, flatten: false}
    - softmax_cross_entropy: {name: loss, label: label}
data:
  batch_size: 32
  train: {dataset: shakespeare, order: stream}
train:
  max_steps: 40
  optimizer: {adam: {lr: 0.01}}
"""

TRANSFORMER = f"""\
name: transformer
threads: 1
network:
  inputs: {{data: [{CONTEXT}], label: [{CONTEXT}]}}
  layers:
    - Embedding: {{name: embed, input_dim: {TOKENS}, output_dim: 32}}
    - position_embedding: {{name: positions, max_length: {CONTEXT}}}
    - LayerNorm: {{name: norm}}
    - FullyConnected: {{name: qkv, num_hidden: 96, flatten: false}}
    - scaled_dot_product_attention:
        {{name: attention, num_heads: 2, causal: true, packed: true}}
    - FullyConnected: {{name: out, num_hidden: 32, flatten: false}}
    - elemwise_add: {{name: sum, lhs: positions, rhs: out}}
    - gelu: {{name: gelu}}
{_REST}"""

LSTM = f"""\
name: lstm
threads: 1
network:
  inputs: {{data: [{CONTEXT}], label: [{CONTEXT}]}}
  layers:
    - Embedding: {{name: embed, input_dim: {TOKENS}, output_dim: 32}}
    - RNN:
        name: rnn
        state_size: 32
        num_layers: 1
        mode: lstm
        layout: NTC
        initial_state: zeros
{_REST}"""

# States that training carries from batch to batch, of a fused layer and of a recurrence.
CARRIED = f"""\
name: carried
threads: 1
network:
  inputs: {{data: [{CONTEXT}], label: [{CONTEXT}]}}
  layers:
    - Embedding: {{name: embed, input_dim: {TOKENS}, output_dim: 32}}
    - RNN:
        name: rnn
        state_size: 32
        num_layers: 2
        mode: gru
        layout: NTC
        initial_state: carry
    - recurrent:
        name: recurrence
        sequences: {{x: rnn}}
        memories:
          h: {{layer: state, shape: [32], carry: true}}
        layers:
          - FullyConnected: {{name: product, num_hidden: 32, data: h}}
          - elemwise_add: {{name: both, lhs: x, rhs: product}}
          - Activation: {{name: state, act_type: tanh}}
        outputs: [state]
{_REST}"""
