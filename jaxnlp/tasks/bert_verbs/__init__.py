"""The verbs of every trained model with a BERT: embeddings, attention maps, exports."""
