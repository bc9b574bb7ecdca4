"""`windrow doctor`: is this machine fit for Windrow, and what is wrong? Each module checks one area."""
