"""Calls about data and plans: init, datasets, pack; inspect-memory, bench, verify."""

from __future__ import annotations

from collections.abc import Mapping

from proof.call_files import (
    flowers,
    folder_of_images,
    idx_images,
    idx_labels,
    image,
    libsvm,
    npz,
    tar_of_images,
)
from proof.call_group import Content, Group
from proof.call_table_train import NET, ROWS

_INIT = """
init photos
init photos
init photos --name second --overwrite --json
init parts --to parts.yaml
init flowers.csv --label kind
init flowers.csv --label 0 --to lengths.yaml --json
init tabs.tsv
init bare.csv --to bare.yaml --name bare
init 'part-*.csv' --label kind
init rows.npz
init rows.npz --label data --to data.yaml
init book.txt
init book.txt --json --overwrite
init news.txt
init mnist
init digits --to try.yaml
init digits --to nowhere/a.yaml
init digits --name a/b
init missing
init missing.csv --json
init flowers.csv --label nothing --to a.yaml
init empty
init a.png
init some.npy
init one
init photos --label x --to b.yaml
init broken.npz --to broken.yaml
init damaged --to damaged.yaml
check photos.yaml
train photos.yaml train.epochs=1 threads=1
train flowers.yaml train.epochs=1 threads=1 --json
train book.yaml train.max_steps=2 train.epochs=null threads=1
train news.yaml train.epochs=1 threads=1
"""

_PROSE = "".join(
    " ".join(
        word
        for place, word in enumerate(("sea", "was", "calm", "and", "wide", "the"))
        if (number >> place) & 1 or place == number % 6
    )
    + ".\n"
    for number in range(300)
)
_NEWS = "".join(
    f"{('weather', 'sport')[number % 2]}\t"
    + " ".join((("rain", "sun", "wind"), ("goal", "match", "team"))[number % 2][: number % 3 + 1])
    + f" today {number % 7}\n"
    for number in range(120)
)

_OF_IMAGES = """
name: photos
threads: 1
network:
  inputs: {data: [3, 8, 8], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train:
    dataset: image_folder
    path: photos
    shuffle: true
    transforms: [{pad_crop: {pad: 2}}, flip, {normalize: {mean: 0.5, std: 0.25}}]
  eval: {dataset: image_folder, path: more, transforms: [{normalize: {mean: 0.5, std: 0.25}}]}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""

_DATASETS = """
datasets list
datasets list --json
datasets describe cifar10
datasets describe csv --json
datasets describe nothing
datasets describe mnits --json
datasets peek photos.yaml
datasets peek photos.yaml --split eval --count 3 --to eval.png
datasets peek photos.yaml --epoch 2 --count 4 --to epoch.png --json
datasets peek photos.yaml --epoch 2 --count 4 --seed 7 --to seed.png
datasets peek photos.yaml --raw --count 4 --to raw.png
datasets peek photos.yaml --to a.jpg
datasets peek photos.yaml --to nowhere/a.png
datasets peek photos.yaml --count 0
datasets peek net.yaml --count 3
datasets peek net.yaml --count 2 --split eval --json
datasets peek net.yaml --epoch 0
datasets peek gpt_tiny --count 2
datasets peek photos.yaml data.train.path=missing
datasets stats photos.yaml
datasets stats photos.yaml --split eval --json --workers 1
datasets stats net.yaml
datasets stats gpt_tiny --json
datasets stats svm.yaml
datasets stats missing.yaml
datasets stats photos.yaml --split test
datasets check photos.yaml
datasets check photos.yaml --json --workers 1
datasets check photos.yaml data.train.path=damaged --workers 1
datasets check photos.yaml data.train.path=damaged --json
datasets check photos.yaml data.eval.path=missing
datasets check net.yaml data.train.path=other.npz
datasets check svm.yaml
datasets check net.yaml data.batch=3
datasets check lists.yaml
train photos.yaml data.train.path=damaged --json
train photos.yaml data.train.path=damaged data.on_bad_record=skip --overwrite
train photos.yaml data.train.path=damaged data.on_bad_record=skip data.max_bad_records=0 name=few
datasets fetch mnist --from mirror
datasets fetch nothing
datasets fetch mnist --from missing --json
datasets fetch tiny_shakespeare --from mirror --to fetched --overwrite
datasets fetch cifar10 --timeout 0
"""

_PACK = """
pack photos photos.rec
pack photos photos.rec
pack photos photos.rec --overwrite --json
pack photos small.rec --resize 4 --quality 90
pack photos grey.tar --channels 1 --encoding png --format tar
pack photos raw.rec --encoding raw --workers 1
pack photos mixed.rec --shuffle --seed 3 --shards 2
pack photos drawn.tar --shuffle --encoding png
pack photos sized.tar --shard-size 2KiB --json
pack images.csv list.rec
pack photos.yaml config.rec --split eval
pack digits_lenet digits.rec --encoding raw --split eval "data.eval.split={range: [0, 20]}"
pack damaged damaged.rec
pack damaged damaged.rec --on-bad-record skip
pack damaged skipped.tar --on-bad-record skip --json
pack missing missing.rec
pack photos nowhere/a.rec
pack photos photos.zip
pack photos kept.rec --quality 50 --encoding keep
pack photos train.rec --split nothing
train packed.yaml --json
datasets stats packed.yaml
datasets stats shards.yaml
@cut photos.rec 100
datasets check packed.yaml
train packed.yaml --overwrite
train shards.yaml
"""

_RECORDS = (
    _OF_IMAGES.replace("dataset: image_folder, path: more", "dataset: recordio")
    .replace("dataset: image_folder", "dataset: recordio")
    .replace("path: photos", "path: photos.rec")
    .replace("name: photos", "name: packed")
)
_SHARDS = (
    _OF_IMAGES.replace("dataset: image_folder, path: more", "dataset: webdataset")
    .replace("dataset: image_folder", "dataset: webdataset")
    .replace("path: photos", "path: some.tar")
    .replace("name: photos", "name: shards")
)
_SVM = NET.replace("dataset: npz", "dataset: libsvm").replace(".npz", ".svm").replace("[12]", "[4]")
_LISTS = _OF_IMAGES.replace(
    "dataset: image_folder, path: more", "dataset: image_list, path: bad.csv"
)

_PLANS = """
inspect-memory net.yaml
inspect-memory net.yaml --json
inspect-memory net.yaml --phase infer --batch 1 --threads 2
inspect-memory net.yaml data.batch_size=64 --json
inspect-memory net.yaml --what-if
inspect-memory net.yaml --what-if --json
inspect-memory net.yaml --diff other.yaml
inspect-memory net.yaml --diff other.yaml --batch 4 --json
inspect-memory net.yaml --html arena.html --svg arena.svg --csv blocks.csv
inspect-memory net.yaml --fail-above 2GiB
inspect-memory net.yaml --fail-above 1KiB
inspect-memory net.yaml --fail-above 1KiB --json
inspect-memory net.yaml "memory.budget=95%"
inspect-memory net.yaml "memory.budget=100 B" --json
inspect-memory net.yaml "memory.budget=64 KiB" --batch max
inspect-memory digits_lenet "memory.budget=70%" memory.micro_batches=true --json
inspect-memory net.yaml --phase generate
inspect-memory net.yaml --batch x
inspect-memory gpt_tiny --phase generate --length 16
inspect-memory gpt_tiny --phase generate --length 1000
inspect-memory lstm_tiny --phase infer --batch 2
inspect-memory nothing
inspect-memory net.yaml --svg nowhere/a.svg
inspect-memory --problem problem.csv
inspect-memory --problem problem.csv --json
inspect-memory --problem problem.csv --time-limit 1 --json
inspect-memory --problem bad.csv
inspect-memory --problem bad.csv --json
inspect-memory --problem missing.csv
verify net.yaml --steps 1
verify net.yaml --steps 1 --batch 4 --threads 2 --json
verify gpt_tiny --steps 0
verify nothing
bench net.yaml --steps 2 --warmup 0
bench net.yaml --steps 2 --warmup 0 --json
bench net.yaml --steps 1 --warmup 1 --phase infer --batch 3 --threads 2 --json
bench net.yaml --steps 1 --warmup 0 --trace trace.json
bench net.yaml --steps 1 --warmup 0 --remeasure
bench net.yaml --steps 1 --warmup 0 context=[cpu:0,cpu:1] --json
bench net.yaml --steps 1 --against onnxruntime
bench net.yaml --steps 1 --against torch,torch
bench net.yaml --steps 1 --against mxnet --peer-python mxnet=nowhere/python
bench nothing
info --json
info --clear-cache --json
"""

_PROBLEM = "id,lower,upper,size\na,0,2,64\nb,1,3,64\nc,2,4,64\nd,0,4,32\n"
_PHOTOS = {
    **folder_of_images("photos", "cat dog", 4),
    **folder_of_images("more", "cat dog", 1),
}
_DAMAGED: Mapping[str, Content] = {
    **folder_of_images("damaged", "cat dog", 4),
    "damaged/cat/2.png": "not an image\n",
    "damaged/dog/1.png": lambda: image(9, 8, 3)()[:60],
}

DATA: Mapping[str, Group] = {
    "init": Group(
        _INIT,
        {
            **folder_of_images("photos", "cat dog", 10, 12),
            **folder_of_images("parts/train", "cat dog", 6, 12, 1),
            **folder_of_images("parts/val", "cat dog", 2, 12, 1),
            **folder_of_images("one", "cat", 2),
            **folder_of_images("damaged", "cat dog", 5),
            "damaged/dog/1.png": "not an image\n",
            "flowers.csv": flowers(1, 60),
            "tabs.tsv": flowers(2, 40, "\t"),
            "bare.csv": flowers(3, 40, header=False),
            "part-0.csv": flowers(4, 40),
            "part-1.csv": flowers(5, 20),
            "rows.npz": ROWS,
            "book.txt": _PROSE,
            "news.txt": _NEWS,
            "mnist/train-images-idx3-ubyte": idx_images(1, 40),
            "mnist/train-labels-idx1-ubyte": idx_labels(2, 40),
            "mnist/t10k-images-idx3-ubyte": idx_images(3, 20),
            "mnist/t10k-labels-idx1-ubyte": idx_labels(4, 20),
            "a.png": image(1),
            "some.npy": npz(1, 3, 2),
            "empty/readme.md": "nothing\n",
            "broken.npz": "no archive\n",
        },
    ),
    "datasets": Group(
        _DATASETS,
        {
            "photos.yaml": _OF_IMAGES,
            "net.yaml": NET,
            "svm.yaml": _SVM,
            "lists.yaml": _LISTS,
            "bad.csv": "photos/cat/0.png,cat\nphotos/cow.png,cow\nmore\n",
            "rows.npz": ROWS,
            "other.npz": npz(2, 60, 11),
            "rows.svm": libsvm(1, 40),
            "mirror/input.txt": "another text\n",
            **_PHOTOS,
            **_DAMAGED,
        },
    ),
    "pack": Group(
        _PACK,
        {
            "photos.yaml": _OF_IMAGES,
            "packed.yaml": _RECORDS,
            "shards.yaml": _SHARDS,
            "images.csv": "photos/cat/0.png,cat\nphotos/dog/0.png,dog\n",
            "some.tar": tar_of_images(1, 6),
            **_PHOTOS,
            **_DAMAGED,
        },
    ),
    "plans and times": Group(
        _PLANS,
        {
            "net.yaml": NET,
            "other.yaml": NET.replace("num_hidden: 16", "num_hidden: 32").replace(
                "name: net", "name: other"
            ),
            "rows.npz": ROWS,
            "problem.csv": _PROBLEM,
            "bad.csv": "id,lower,upper,size\na,0,2,64\nb,3,1,64\na,2,x,64\n",
        },
    ),
}
