"""The tests of kwire, one folder per package; end_to_end holds the tests with stock clients."""
