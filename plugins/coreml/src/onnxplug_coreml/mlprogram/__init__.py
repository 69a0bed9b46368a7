"""The engine MLProgram: Core ML, by coremltools."""
