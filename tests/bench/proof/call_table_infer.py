"""Calls that use trained networks: infer with inputs and with prompts, evaluate, convert."""

from __future__ import annotations

from collections.abc import Mapping

from proof.call_files import flowers, folder_of_images, image, npy, npz
from proof.call_group import Group

_IMAGES = """
name: photos
threads: 1
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Flatten: {name: flat}
    - FullyConnected: {name: fc1, num_hidden: 8}
    - Activation: {name: relu1, act_type: tanh}
    - FullyConnected: {name: fc2, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 6
  train: {dataset: image_folder, path: photos, split: {share: 0.75, stratify: true}}
  eval: {dataset: image_folder, path: photos, split: rest}
train:
  epochs: 3
  average: 0.5
  checkpoint: {every: 4 steps, keep: 2, best: accuracy}
  optimizer: {sgd: {lr: 0.3}}
  metrics: [accuracy]
"""

_ON_IMAGES = """
train photos.yaml
infer runs/photos a.png
infer runs/photos a.png b.png --top 2
infer photos a.png --json
infer runs/photos photos --output jsonl --top 3
infer runs/photos photos/cat --output csv
infer runs/photos a.png --to one.csv
infer runs/photos a.png b.png --to two.jsonl --top 2
infer runs/photos a.png b.png --output npy --to three.npy
infer runs/photos a.png --outputs fc1
infer runs/photos a.png --outputs fc1,flat --to layers.npz
infer runs/photos a.png --outputs fc1,relu1 --json
infer runs/photos a.png --outputs nothing
infer runs/photos a.png --output npy
infer runs/photos --split eval
infer runs/photos --split eval --batch 3 --threads 2 --json
infer runs/photos --split train --output jsonl --precision bfloat16
infer runs/photos --split nothing
infer runs/photos a.png --classes names.txt
infer runs/photos a.png --classes few.txt
infer runs/photos a.png --top 9
infer photos a.png --checkpoint newest --runs runs
infer runs/photos a.png --checkpoint best --json
infer runs/photos a.png --checkpoint 9 --output csv
infer runs/photos a.png --checkpoint 5
infer runs/photos a.png --precision half
infer runs/photos a.png --batch max
infer runs/photos - < a.csv
infer runs/photos missing.png
infer runs/photos missing.png large.png broken.png --json
infer runs/photos broken.png
infer runs/photos large.png
infer runs/photos empty
infer runs/photos a.png --to nowhere/a.csv
infer runs/photos a.png label=kind
infer nothing a.png
infer photos a.png --runs elsewhere
MXRUN_RUNS=elsewhere infer photos a.png
infer photos.yaml a.png
evaluate runs/photos
evaluate photos --json
evaluate runs/photos --split train --errors 3
evaluate runs/photos --errors 2 --json
evaluate runs/photos others
evaluate runs/photos others.csv --json
evaluate runs/photos --checkpoint newest --batch 4 --threads 2
evaluate runs/photos --precision bfloat16
evaluate runs/photos unknown
evaluate runs/photos missing
evaluate runs/photos --split nothing --json
evaluate runs/photos --checkpoint 77
evaluate runs/photos data.batch_size=3
evaluate runs/photos colour=red
convert runs/photos -o photos.onnx
convert runs/photos --output fixed.onnx --batch 2 --checkpoint newest --json
convert photos -o again.onnx
convert photos.yaml -o initial.onnx seed=5
convert photos.yaml -o nowhere/a.onnx
convert runs/photos -o a.onnx --checkpoint 77
convert runs/photos -o a.onnx seed=5
convert nothing -o a.onnx --json
convert gpt_tiny -o gpt.onnx --batch 1
inspect-memory runs/photos --json
plot runs/photos
"""

_TABLE = """
name: flowers
threads: 1
network:
  inputs: {data: [3], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 8}
    - Activation: {name: relu1, act_type: relu}
    - FullyConnected: {name: fc2, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 10
  train: {dataset: csv, path: flowers.csv, label: kind, header: true, split: {share: 0.8}}
  eval: {dataset: csv, split: rest}
train: {epochs: 3, optimizer: {adam: {lr: 0.05}}}
"""

_PLUGIN = '''"""Half of the numbers."""

from mxrun.operator.simple import reads_inputs, simple_operator


def gradient(out_grad, x):
    """A half."""
    return out_grad / 2


@simple_operator("half", gradient=reads_inputs(gradient))
def half(x):
    """output = data / 2."""
    return x / 2
'''

_NUMBERS = """
name: numbers
threads: 1
plugins: [half.py]
network:
  inputs: {data: [4], label: [1]}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 1}
    - half: {name: half}
    - LinearRegressionOutput: {name: out, label: label}
data:
  batch_size: 5
  train: {dataset: npz, path: numbers.npz}
  eval: {dataset: npz, path: numbers.npz}
train: {epochs: 1, optimizer: {sgd: {lr: 0.01}}, metrics: [mse, mae]}
"""

_ON_TABLES = """
train flowers.yaml --json
infer runs/flowers new.csv
infer runs/flowers flowers.csv label=kind --output csv --top 2
infer runs/flowers - < new.csv
infer runs/flowers new.csv --to new.jsonl
infer runs/flowers bare.csv header=false --json
infer runs/flowers semicolons.csv "delimiter=;" --output csv
infer runs/flowers bad.csv
infer runs/flowers bad.csv --json
infer runs/flowers narrow.csv
infer runs/flowers numbers.npy
infer runs/flowers new.csv data=[length,width]
infer runs/flowers new.csv data=[a,b,c]
evaluate runs/flowers
evaluate runs/flowers flowers.csv --errors 2 --json
evaluate flowers dataset=csv path=flowers.csv label=kind header=true --split all
evaluate runs/flowers bad.csv
train numbers.yaml
evaluate runs/numbers
evaluate runs/numbers --json --errors 2
infer runs/numbers numbers.npy
infer runs/numbers numbers.npy --json
infer runs/numbers wide.npy
infer runs/numbers --split train --top 2
infer runs/numbers --prompt abc
@replace half.py "x / 2" "x / 2 + 0"
infer runs/numbers numbers.npy
infer runs/numbers numbers.npy --allow-plugins
evaluate runs/numbers --allow-plugins --allow-changes
convert runs/numbers -o numbers.onnx --allow-plugins
"""

_TEXT = """
name: words
threads: 1
network:
  inputs: {data: [16], label: [16]}
  layers:
    - Embedding: {name: embed, input_dim: 62, output_dim: 8}
    - RNN: {name: lstm, mode: lstm, state_size: 8, num_layers: 1, layout: NTC, initial_state: carry}
    - FullyConnected: {name: head, num_hidden: 62, flatten: false}
    - softmax_cross_entropy: {name: loss, label: label, grad_scale: "${1 / 16}"}
data:
  batch_size: 8
  train: {dataset: shakespeare, split: train, order: stream}
train: {max_steps: 3, optimizer: {adam: {lr: 0.05}}}
"""

_ON_TEXT = """
train words.yaml --json
infer runs/words --prompt "ROMEO:" --length 30
infer runs/words --prompt "ROMEO:" --length 30 --seed 4
infer runs/words --prompt "ROMEO:" --length 30 --temperature 0.5 --json
infer runs/words --prompt "ROMEO:" --length 30 --top-k 3 --json
infer runs/words --prompt "ROMEO:" --length 30 --top-p 0.3 --json
infer runs/words --prompt "ROMEO:" --length 30 --temperature 0 --threads 2 --precision bfloat16
infer runs/words --prompts lines.txt --length 10
infer runs/words --prompts prompts.jsonl --length 10 --batch 1 --json
infer runs/words --prompts prompts.json --length 5
infer runs/words --prompts - --length 5 < lines.txt
infer runs/words --prompt "" --length 5
infer runs/words --prompt "~" --length 5
infer runs/words --prompts bad.jsonl --json
infer runs/words --prompts missing.txt
infer runs/words --prompts empty.txt
infer runs/words --prompt "A" --checkpoint 1
infer runs/words --prompt "A" --length 3 --checkpoint newest --json
infer runs/words lines.txt
infer runs/words --split train
evaluate runs/words
evaluate runs/words --split test --json
inspect-memory words.yaml --phase generate --length 8
inspect-memory words.yaml --phase generate --json
convert runs/words -o words.onnx
infer runs/words --prompt "A" --length 100000000
"""

_PHOTOS = folder_of_images("photos", "bird cat dog", 8, channels=1)
_OTHERS = folder_of_images("others", "cat dog", 2, channels=1)

INFER: Mapping[str, Group] = {
    "networks of images": Group(
        _ON_IMAGES,
        {
            "photos.yaml": _IMAGES,
            **_PHOTOS,
            **_OTHERS,
            **folder_of_images("unknown", "cow horse", 1, channels=1),
            "others.csv": "others/cat/0.png,cat\nothers/dog/1.png,dog\nothers/dog/0.png,cat\n",
            "a.png": image(901),
            "b.png": image(902),
            "a.csv": ",".join(str(number) for number in range(64)) + "\n",
            "large.png": image(903, 16, 3),
            "broken.png": "not an image\n",
            "names.txt": "one\ntwo\nthree\n",
            "few.txt": "one\ntwo\n",
            "empty/readme.md": "nothing\n",
        },
    ),
    "networks of tables": Group(
        _ON_TABLES,
        {
            "flowers.yaml": _TABLE,
            "flowers.csv": flowers(1, 60),
            "new.csv": "length,width,height\n1.5,1.2,0.9\n0.1,0.2,-0.3\n",
            "bare.csv": "1.5,1.2,0.9\n0.1,0.2,-0.3\n",
            "semicolons.csv": "length;width;height\n1.5;1.2;0.9\n",
            "bad.csv": "length,width,height\n1.5,1.2,0.9\n0.1,x,-0.3\n1,2\n",
            "narrow.csv": "length,width\n1.5,1.2\n",
            "numbers.npy": npy(7, 3, 4),
            "wide.npy": npy(8, 3, 5),
            "numbers.yaml": _NUMBERS,
            "numbers.npz": npz(4, 20, 4, classes=0),
            "half.py": _PLUGIN,
        },
    ),
    "networks of texts": Group(
        _ON_TEXT,
        {
            "words.yaml": _TEXT,
            "lines.txt": "ROMEO:\nTo be, or\n",
            "prompts.jsonl": '"ROMEO:"\n{"prompt": "To be, or"}\n',
            "prompts.json": '["ROMEO:", {"prompt": "To be"}]',
            "bad.jsonl": '"ROMEO:"\n{"promt": "To be, or"}\n3\n',
            "empty.txt": "",
        },
    ),
}
