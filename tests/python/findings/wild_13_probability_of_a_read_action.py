"""One transition's actor-critic: -log(probs[action.item()]) * ret."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {str(seed): seed for seed in range(3)}


def play(wrap, seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def update(observation, action, ret):
        probabilities = F.softmax(net(observation), -1)
        loss = -torch.log(probabilities[action.item()]) * ret
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(update)
    return [step(torch.randn(4), torch.randint(0, 2, ()), torch.randn(())).item() for _ in range(40)], step
