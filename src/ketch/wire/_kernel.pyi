# The types are the twin's.
from ketch.wire._pure_walk import Step as Step
from ketch.wire._pure_walk import walk as walk
from ketch.wire._pure_write import Entity as Entity
from ketch.wire._pure_write import Field as Field
from ketch.wire._pure_write import encode as encode
from ketch.wire._pure_write import entity_bytes as entity_bytes
