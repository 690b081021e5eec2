"""Trains and replays on the simulated CUDA device: run with the library in LD_PRELOAD."""

import torch


def captured_step(model, optimizer, inputs):
    """One optimizer step as a CUDA graph, warmed up on a side stream as PyTorch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss


def parameters_after(replayed):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, capturable=True)
    inputs = torch.randn(16, 4).cuda()
    graph, _ = captured_step(model, optimizer, inputs)
    state = torch.cuda.get_rng_state()
    for _ in range(3):
        if replayed:
            graph.replay()
        else:
            optimizer.zero_grad(set_to_none=False)
            model(inputs).square().mean().backward()
            optimizer.step()
    torch.cuda.set_rng_state(state)
    return [parameter.detach().cpu() for parameter in model.parameters()]


def main():
    assert torch.cuda.is_available() and torch.cuda.get_device_name() == "Simulated"
    assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]
    eager, replayed = parameters_after(False), parameters_after(True)
    assert all(torch.equal(a, b) for a, b in zip(eager, replayed))


if __name__ == "__main__":
    main()
