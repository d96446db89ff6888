"""Checks the configs in the metadata before a start changes any file.

They were checked when they were written, so a bad one is damage, which no checksum of the store
covers. A topic of another cleanup policy, say, would lose what was compacted.
"""

from oncelog.controller.image import MetadataImage
from oncelog.core.config import check_topic_overrides
from oncelog.core.config_definition import ConfigError
from oncelog.core.group_keys import GROUP_KEYS, unknown_group_key

__all__ = ["stored_config_problem"]


def stored_config_problem(image: MetadataImage) -> str | None:
    """Return which stored config cannot be used, and whose it is; None if all can."""
    for topic in image.topics.values():
        try:
            check_topic_overrides(topic.config)
        except ConfigError as error:
            return _problem(f"topic {topic.name}", error)
    try:
        check_topic_overrides(image.cluster_config)
    except ConfigError as error:
        return _problem("the cluster", error)
    for group_id, config in image.group_configs.items():
        try:
            for name, text in config.items():
                if name not in GROUP_KEYS:
                    raise ConfigError(unknown_group_key(name))
                GROUP_KEYS[name].parse(text)
        except ConfigError as error:
            return _problem(f"group {group_id}", error)
    return None


def _problem(owner: str, error: ConfigError) -> str:
    return f"the metadata is damaged, in the configs of {owner} ({error}): put back a copy of it"
