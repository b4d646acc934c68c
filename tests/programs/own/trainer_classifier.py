"""Fine-tunes a small BERT for classification with transformers' Trainer, on sentences of random words."""

from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class DataArguments:
    max_seq_length: int = field(default=64)
    sentences: int = field(default=4000)


class Sentences(Dataset):
    def __init__(self, count, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(5, 2000, (count, length), generator=generator)
        self.labels = (self.words.float().mean(1) > 1000).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": self.labels[index]}


def main():
    parser = HfArgumentParser(DataArguments)
    (data_args,) = parser.parse_args_into_dataclasses()
    config = BertConfig(
        vocab_size=2000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, num_labels=2
    )
    training_args = TrainingArguments(
        output_dir="bert-out", num_train_epochs=50, per_device_train_batch_size=16, save_strategy="no", report_to=[]
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=Sentences(data_args.sentences, data_args.max_seq_length, 0),
        eval_dataset=Sentences(400, data_args.max_seq_length, 1),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
