"""AlterConfigs (33), versions 0 to 2: all configs of topics or brokers at once; what is not given goes back to its
default.

Clients use it where they do not know IncrementalAlterConfigs. Configs that are chosen when a topic is created stay.
"""

from __future__ import annotations

from typing import Any

from ketch.broker.api import Answer, Request
from ketch.broker.coordination import group_configs
from ketch.broker.handlers import incremental_alter_configs as incremental
from ketch.broker.resources import ConfigType
from ketch.configs.topic_table import CONFIGS


async def handle(request: Request) -> Answer:
    return await incremental.answer(request, _changes)


def _changes(request: Request, asked: Any) -> list[incremental.Change]:
    given = {config.name: config.value for config in asked.configs}
    if asked.resource_type == ConfigType.BROKER:
        names = list(request.broker.dynamic.stored(asked.resource_name))
    elif asked.resource_type == ConfigType.GROUP:
        names = list(group_configs.CONFIGS)
    else:
        names = [name for name, config in CONFIGS.items() if not config.fixed]
    rest = [name for name in names if name not in given]
    sets: list[incremental.Change] = [(name, incremental.Operation.SET, value) for name, value in given.items()]
    return sets + [(name, incremental.Operation.DELETE, None) for name in rest]
