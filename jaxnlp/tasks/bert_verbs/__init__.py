"""What every trained model with a BERT can do, whatever its task: embeddings, attention maps, exports."""
