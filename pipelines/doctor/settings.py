"""What of ``resources.yaml`` the doctor asks a host for, and judges it by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipelines.doctor.model import Setting
from pipelines.doctor.services import PLACES
from pipelines.plan.provisioning.base import Binding, Resource
from pipelines.plan.provisioning.resource_models import (
    Commands,
    DefenderExclusion,
    Distributions,
    Environment,
    PageFile,
    Registry,
    WinrmQuota,
)
from pipelines.plan.provisioning.resources import Resources, bind_resources, load_resources

if TYPE_CHECKING:
    from pipelines.plan.matrix.buildplan import BuildPlan

_JUDGED = (Commands, DefenderExclusion, Distributions, Environment, PageFile, Registry, WinrmQuota)


def binding_of(plan: BuildPlan, resources: Resources | None = None) -> Binding:
    """What is wanted of the host of ``plan``, filled in."""
    return bind_resources(resources or plan.resources, plan.recipe, plan.cache.lock, plan.place)


def settings_to_check(plan: BuildPlan) -> tuple[Setting, ...]:
    """What its host is judged by, whether provisioning sees to it there or not."""
    binding = binding_of(plan)
    settings = _bind_settings(binding, binding.resources)
    if plan.host.existing is not None and plan.host.capabilities.windows:
        # Nothing is set on such a machine, but what is not right there hinders builds as well.
        shipped = load_resources().model_copy(update={"layout": plan.resources.layout})
        others = [r for r in binding_of(plan, shipped).resources if not isinstance(r, Commands)]
        settings += _bind_settings(binding, others)
    return (*settings, *_unmanaged_quota_settings(settings))


def _bind_settings(binding: Binding, resources: Iterable[Resource]) -> list[Setting]:
    found = []
    for resource in resources:
        if isinstance(resource, _JUDGED) and (wanted := resource.bind(binding)):
            # Such an environment is used as it is: nothing is installed into it.
            ours = resource in binding.resources and not isinstance(resource, Distributions)
            if isinstance(resource, Commands):
                ours = all(binding.brought(name) for name in wanted.spec["names"])
            found.append(Setting(wanted.id, wanted.spec, ours, wanted.summary))
    return found


def _unmanaged_quota_settings(settings: list[Setting]) -> list[Setting]:
    """The quotas at the other place, where nothing sets them: the smaller one wins."""
    quotas = {
        (setting.spec["place"], setting.spec["name"]): setting.spec
        for setting in settings
        if setting.spec["kind"] == "winrm_quota"
    }
    names = {name: spec for (_, name), spec in quotas.items()}
    return [
        Setting(f"{place} {name}", {**spec, "place": place}, False)
        for place in PLACES
        for name, spec in names.items()
        if (place, name) not in quotas
    ]
