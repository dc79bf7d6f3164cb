"""What trl imports from here; only its server needs it."""

NCCLTrainerSendWeightsArgs = NCCLWeightTransferEngine = None
