# The types are the twin's.
from ketch.metrics._pure_histogram import Histogram as Histogram
from ketch.metrics._pure_histogram import Times as Times
from ketch.metrics._pure_histogram import Trips as Trips
