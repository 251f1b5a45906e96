"""What `GET /metrics` says."""

from prometheus_client.parser import text_string_to_metric_families
from serving import Served


async def text_of_metrics(served: Served) -> str:
    """Return what the route answers."""
    async with served.http.get(f"{served.url}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return await response.text()


async def value(served: Served, name: str, **labels: str) -> float:
    """Return the sum of the samples of this name that have these labels."""
    families = text_string_to_metric_families(await text_of_metrics(served))
    samples = [sample for family in families for sample in family.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name == f"elbowroom_{name}" and labels.items() <= sample.labels.items()
    )
