"""TensorFlow: functions that it has traced, and SavedModel folders, by the HLO that it makes."""
